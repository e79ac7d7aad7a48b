"""A Django database backend: PostgreSQL, started first if it is the embedded one."""
