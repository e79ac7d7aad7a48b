"""A partitioned message broker on PostgreSQL.

Stations of a request: api (HTTP) -> services (one verb or noun each) -> store (the only
place that speaks SQL) -> stored procedures, which decide. Nothing here reads the
environment: queen_project hands a typed configuration to runtime.Broker.
"""
