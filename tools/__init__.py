"""Programs with which the project itself is built and judged. They are no part of what is published."""
