"""Small real implementations behind the production seams, for tests: a clock to move, a disk that fails."""
