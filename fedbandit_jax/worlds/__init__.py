"""What is played on: catalogs of arms, key terms and users, worlds, federations drawn from them, and their stages."""
