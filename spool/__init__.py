"""The disk spool: where a push waits while PostgreSQL is away.

records    one message as bytes on the disk, and back
segment    a file of records: its name, and reading it whatever has happened to it
directory  the files in their order, the lock, the names that never go backwards
quarantine `failed/`: damaged bytes, poison records, unreadable files
writer     appends, and answers after the group's fsync
drain      replays the files, oldest first, and is exact about it
errors     what can go wrong

The spool knows neither Django nor the broker: what it needs is handed in. A record is
answered `buffered` only once its file and directory are on the disk.
"""
