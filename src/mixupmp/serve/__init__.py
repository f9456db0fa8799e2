"""`mixupmp serve`: a posterior behind HTTP, with limits."""
