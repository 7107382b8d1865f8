"""The sparse models on a device."""
