"""`python -m mixupmp` is the command `mixupmp`."""

from mixupmp.cli import main

if __name__ == "__main__":
    main()
