"""The life of a step, from top to bottom: loop, prepare, invoke, finish, chain_writer, committer."""
