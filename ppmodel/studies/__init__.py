"""Many points and questions about them: comparisons, noise, searches, sweeps, plans, measured runs."""
