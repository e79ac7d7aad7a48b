"""The disk spool: where a push waits while PostgreSQL is away.

The spool knows neither Django nor the broker: what it needs is handed in. A record is
answered `buffered` only once its file and directory are on the disk.
"""
