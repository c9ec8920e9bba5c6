"""Schedules that serve every CPU."""
