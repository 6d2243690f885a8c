"""One form of input a file: a script, a compose file, a manifest, chart values, a unit, a plan -> servers."""
