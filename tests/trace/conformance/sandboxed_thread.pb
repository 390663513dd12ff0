
Ph
Pâ"*boxed:
@
PZHXº	elsewhere
@PZHºby sequence
@PZH

@PZHX