"""The command line: runs flows and shows what they did."""
