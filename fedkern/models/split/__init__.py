"""Models regressions whose columns are split over clients."""
