"""How something is built, or who holds what: trees, tables of rules, holdings."""
