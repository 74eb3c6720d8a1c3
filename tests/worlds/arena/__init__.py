"""A package, so that its test files may be named like those of the other worlds."""
