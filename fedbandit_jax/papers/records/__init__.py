"""One file a paper: its experiments, claims and published figures as data; FedConPE's is a room above."""
