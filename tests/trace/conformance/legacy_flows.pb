
Phâ2
@èPZHºsource
@ÌPZ2s0²cºflow
	@°	PZH
@”
PZ	Hºstep
@ø
PZ2t0²cºflow
@ÜPZ2f0²cºflow
	@ÀPZH
@¤PZHºthe next slice
@ˆPZ2f0`²cºflow
	@ìPZH
@ÐPZ2@	hHºout
	@´PZH
@˜PZ2@	hHºthrough
	@üPZH
@àPZ2@	hHºin
	@ÄPZH