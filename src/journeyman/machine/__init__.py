"""The machine: files, environment and descriptors of this process, its forks, and the version that is installed."""
