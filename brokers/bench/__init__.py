"""The bench: what a broker does per second, beside what PostgreSQL itself does.

A run is one process that decides (`scenarios`, `crew`) and child processes that load:
over HTTP (`load`, `roles`, `wire`) or straight over psycopg with the same procedures
(`direct`). It is an instrument, not a part of the broker: nothing of the broker imports it.
"""
