"""The machine: processes, files, sockets, SQLite."""
