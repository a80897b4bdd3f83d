"""What came out: tables of all runs, statistics with intervals, folders on disk, figures."""
