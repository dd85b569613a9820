"""Hosts: how they are named, which of their addresses are public, and a proxy that lets few of them through."""
