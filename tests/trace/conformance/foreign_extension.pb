
NТK
I
G
e.protoother"5
E20

other_text.perfetto.protos.TrackEventЌM (	
@
PZHКcтъtext
@PZHКdтъtext
@PZHКeђъnobody's
@PZH