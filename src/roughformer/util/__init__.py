"""Small helpers that know nothing of series: atomic files, checkpoints, checks of options."""
