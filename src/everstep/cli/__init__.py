"""The command line: runs flows and shows what they did. Read `main` first: it lists the commands.

`args` reads words, `commands` are the commands in groups, `view` shows runs and values, `live` a run under
way. May import client, server, results and what these build on; a store only through a host.
"""
