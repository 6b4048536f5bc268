"""The schedules that we know, one file each."""
