"""NEXMark's queries as Headrace apps."""
