"""Programs for maintainers: the test of the built wheel, and releasing."""
