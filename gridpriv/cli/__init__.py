"""The command line. Each command's module parses arguments, calls the library and prints."""
