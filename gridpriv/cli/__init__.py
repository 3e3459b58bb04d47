"""The command line: one file a command. They parse, call one function and print."""
