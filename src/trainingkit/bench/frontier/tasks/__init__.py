"""The tasks that schemes are compared on: a file each."""
