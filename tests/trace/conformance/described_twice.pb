
Ph
â	plain
Pâ":
@
PZHºon the thread
@PZHXºon the track
@PZH