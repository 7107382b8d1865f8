"""Regression whose columns are split over clients."""
