"""Models on this machine, whose server this library starts: `connect("local:smollm2")`."""

__all__: list[str] = []
