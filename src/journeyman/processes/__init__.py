"""Programs that this process starts, in a box or in none: how they are started, read, watched, and ended as a whole."""
