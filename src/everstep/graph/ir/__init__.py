"""A flow as JSON: written without its functions, read with a registry that knows them."""
