"""Words of English, in lower case, that lists of names have too.

They are the words of Faker's lists that LemmInflect's dictionary or published abstracts have as common words.
"""

from __future__ import annotations

_COMMON_WORDS = """
abate abbey abed ace add admiral agate alba albino ale alfa alfredo aline ally almond alpha alto amber amble amine
amir angel angelic ani ante ants arch archer arenas aria arias arroyo art arts asks aspen astride atlas auger august
aura author autumn ayu azalea babe baby back backer bail baker bale ball ban banks barb barbe barber bare barker
barman baron barrio barrios barrows basil bass bassi basso bates bath bean beard beat beau bee beer bell bender bent
bents berg bergs berry beryl best beta bigot bilge bill bills billy binder bins birch bird birdie bishop bite bitten
black blanch blaze blessing bliss block blossom blot bob bobby bode bodkin bogey boles bona bond boner bones bonnet
boon booth bore borer boss bouillon bourgeois bowers bowler bowman brain branch brands brandy bravo bray brewer
brick bridge bridges bright brink brook brooks brown browning brunet buck bud buddy buffy bull bullock bunk burns
burr burrows bury bush buster butch butcher butler caddie cadence cam camps can canal canals candy canning cannon
canny cant canyon cap caprice captain car cares carmine carol carolyn carpenter carrier carry carton case cases cash
celesta chambers champ champagne chance chancy chandler char charity chase chastity cherish cherry chi chin china
chip christ christen chuck church cinnamon cisterna clay clear cleave clement cliff close cocci colas collie collier
colon colonel colt comas combs comer comfort comment commodore company con concha constant contractor convey cook
cools coral cord cornet corona corral council courtier cousin cousins coy crane craven craw creed crooks cross
cruces cruise crystal cummins currie curry curt dahlia daisy dale dalton dam dare darling dash date dawn dax day
deacon dean deb decamps deep deforest del dell della delta denning derrick dexter diamond dieter dimple din dirk
diver divine doc dock doctor dodo doe doll dolly don doppler dot dotty dove downing downs doyen drake drew dries
drum duff duke dunning dusty dyer each earl early earnest easter ebb ebony echo eddy edit edu eider elder else ember
emerald emeralds emery emir emit era ermine essence ester eta ether ethyl ever fair fairy faith fall fancy fanning
fanny fares farina farmer fate fawn fed fee felicity feline feller fern ferry field fielding fields finch fink
flavin fleck fleet flint flood floor flora florin flowers font foot ford forest forget forum foster fount fox franc
frank franks freely fresh friend frisk frost fry fuller funk gabriel gage gala gale gamble garland garner garnet
garrison gates gauge gay gene general genesis genie gentry gerd gibbon gibbons gill ginger glass glasses glazier
glen gloria goblet golden good gore gorge governor grace grand grant gravel graves gray green greet grey griffin
grill grimes grit gross grove guard gun gunner gunning gurney gust gut guy hacker hale hall halls ham hammer hand
handler handy harden hardy hare haring harm harmony harry harsh hart hasty haven hawthorn hay hays hazel hearty
heath heather heaven heck hector held hell helm hemi hence henna hens herb herd heron herring hicks hill hills hind
hoes holder holler holly homer honing hood hook hoop hope horn house huff hug hull hung hunt hunter hurt hussey
hymen icy ide immaculate ine infant innocent ion iris ivory ivy jack jacks jade jail jarred jasmine jasper jay jet
jewel jimmy job joke journey joy judge jug junior junk justice karen keeling ken kevin key khan kick kidney killer
kind kindle king kink kiss kit kitty knight knoll lacy lad lady lam lamas lamb lance lander landers lane lark lass
laurel lavender law lawless lawyer lea leach leafy lean leaner lee leech lees lem lemma lemon less levy ley leys
liberty lie lien lies lily linden line link lips lira lisle list little llamas loan lode lofts lon lone long loot
lope lopes lord lore lot love low loyal luc lucid lucky lumi luster lute lynch lyric mace macho mad madden made
madrigal magna magnolia major mal male mall mallet man mane manila manilla manly manning mans mar mare mares
margarita marina marine mark marks marlin marry mars marsh marshal mart marten martens martial martin martins marvel
mason masse master mat mate mater math mats matt maverick max maxim maxima may mayo mayor mayoral mcdonald mcmurray
meadow meadows media melanine melody mentor merchant mercy merino merrily merry mesa messiah meta metro mickey mike
mile miles miller millet mills miner minor miracle mist misty mitt moan mol moles moll monk monks moody moon moons
moor moors more mores morgan morgans morin moss mountain mule must myrtle nacho nadir nail nannie narcissus nary
nell neu newt newton nick nickels nil ninja noble north nova novella oak octave odd odds olive opal oral orange
orchard org ova owe pace page pages pal pall palm palomino pansy pant pap parent park parks parley parry parsons
parts pastor pat pate patience patty paw payer peace peacock pearl pearly peck peer pellet penny pepper per peri
peter peters petty pier pierce pike pink pinkie pinto piper plana plank plaza pleas pleasant plover pock pole polo
pons pop pope poppy porter post potter potters pottier power powers precious press price priest prince princess
privet proctor prosper provost prudence puck purity purl put queen quill rafter raid rails raja ram randy ransom
ravel raven ray read reader real reason red redden reed reeves refs rein reis renders rex rhea rice rich richer rick
riddle ridge rim ring river rivers roach roan roar rob robin rock rocky rod roe roll room roots rose rosemary
rosette rosin rosy rout royal rube ruby ruddy rune rush rust rusty rut sable sad safari saga sage said saint salami
sales sally salmon salvo sandal sander sanders sands sandy sane sang sari savage savanna savannah savant sawyer
scarlet scullion sears sellers senna sera serenity serge serine server sever sexton shad shade sharp sheikh shepherd
sherry shields shine short sibyl sierra silk silvan silver sincere sine sing singer singleton sinner sire sister
sitar sitters skip sky small smart smith smolders snow solar sole son sonata soon soots soprano sparks spears spies
spring squire stack star stark starling steer stein sterling stern steward stock stokes stone stonewall stoney
storey storm storms stormy story stout strand street strong sue suits summer summers sunder sunny sunshine supple
swift swords sylvan tab tack tad tailor talon tan tank tanner tawny tea terry thatcher theodore theta ties tilde
till tine tins tiny tom toms tone toner too toots tor tore tori torrent torrents tory toy trace treasure trinity
tromp true tudor turner unique unknown unnamed urban vain valentine valid valves van veer velvet vena vera vernal
versa vial victor victors victory vigil villa villi viola violet viva von wade wage walker wall walls ward ware
warmer warren warrior wash waters watt watts way weaver weeks weir welch wells welter were west whit white wiener
wild wilder will willow wills windy wing winter winters wise wolf wolfram wood woods woody worth wren wright yaw
yoga yogi young zeta zona
"""
COMMON_WORDS = frozenset(_COMMON_WORDS.split())
"""A word of them in lower case is no name, unless the words around it say so."""
