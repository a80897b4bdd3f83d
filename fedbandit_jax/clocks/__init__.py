"""How time passes: what every algorithm is, the round clock, the phase clock and the schedules of questions."""
