"""A repository on GitHub, or on a server that speaks as it does, as a place for named bytes."""
