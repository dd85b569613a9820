"""What the command line lets an agent do by itself, and how it asks about the rest."""
