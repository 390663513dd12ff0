"""Which calls a step cache let skip blocks, and what that saved."""
