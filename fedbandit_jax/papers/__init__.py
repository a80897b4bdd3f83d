"""Papers as data: experiments, claims and bounds of each; playing, tuning and judging them."""
