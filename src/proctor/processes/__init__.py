"""Child processes: none of them outlives the process that started it."""
