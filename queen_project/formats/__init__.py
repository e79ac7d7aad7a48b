"""How the console writes times, by language: there is one."""
