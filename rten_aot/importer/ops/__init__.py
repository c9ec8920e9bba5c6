"""One module for each family of operators; all of them are found and loaded by the registry."""
