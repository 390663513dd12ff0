
Ph‚2*main0
PZ2X≤c∫whole
PZ2B≤c∫inside
PZ2X2≤c∫overlaps

PZ2E
PZ2IpÄ∫thread
PZ2IpÄ∫process
PZ2ipÄ∫global
PZ2RÄ∫mark
PZ2b0Ä≤c∫async
PZ2bPÄ≤c∫async
PZ2n0Ä ≤c∫step
PZ2ePÄ!≤c∫async
PZ2e0Ä"≤c∫async
!PZ2b0:scopeÄ#≤c∫scoped
PZ" Rx2SX	Ä$≤c∫old
PZ2TX	Ä%≤c∫old
PZ2FX	Ä&≤c∫old
"PZ2Bò3Ä(∫of another thread
#PZ2BêÄ)∫of another process
PZ
2Eò3Ä*