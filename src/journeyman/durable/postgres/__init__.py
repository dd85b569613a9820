"""Durable runs in Postgres: the engine, its connections and statements, and who brings the tickets to workers."""
