

âone
@
PZHX²cºa
@PZHX²c²dºb
@PZHX²eºa
@PZHXºb
@PZHXºdeeper
@PZHXºnobody
@PZHX²c
@PZHXºmoment
@PZHXºsame moment
@PZHXºout of order

@PZHX
@PZHXºnever ended